// Runs the public tests for HTTP caches (the npm package http-cache-tests): the origin that they need, and their client.
//
//     node suite.mjs FOLDER [--show] [ID…]
//
// FOLDER has the unpacked package, or a checkout of a later edition (https://github.com/http-tests/cache-tests), which has its
// engine in a folder of its own. The first line written is the origin's URL. The first line read is that of the cache to
// be tested, which stands before it by then. A line for each test follows: id, kind, outcome, and what was said of
// it, with tabs between. Only the tests with these ids are run, and those on which they depend. --show writes what
// client and origin see of them to standard error.
//
// The outcome is the package's own judgement (`determineTestResult`), by which its published tables are drawn: a test whose
// dependency is not passed is not passed either. Left out are tests for browsers, and those of Surrogate-Control, which the
// published tables leave out, too.

import fs from 'node:fs'
import http from 'node:http'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'

import fetch from './fetch.mjs'

// Tests under way at a time: most of them wait for responses to become stale.
const TESTS_MAX = 60

// What the package draws for an outcome.
const OUTCOMES = {
  '✅': 'pass',
  Y: 'pass',
  '⛔️': 'fail',
  '⚠️': 'fail',
  N: 'fail',
  '🔹': 'setup failed',
  '⚪️': 'dependency failed',
  '↻': 'retried',
  '⁉️': 'harness failed'
}

const [folder, ...rest] = process.argv.slice(2)
const isShown = rest.includes('--show')
const ids = rest.filter(argument => argument !== '--show')

// The package writes its exchanges and warnings with this; standard output is for results.
const write = line => process.stdout.write(`${line}\n`)
console.log = isShown ? console.error : () => {}

const root = pathToFileURL(`${folder}/`)
const engine = new URL(fs.existsSync(`${folder}/test-engine`) ? 'test-engine/' : '', root)
const load = (path, from = engine) => import(new URL(path, from))
const { default: suites } = await load('tests/index.mjs', root)
const { runTests, getResults } = await load('client/runner.mjs')
const judging = fs.existsSync(new URL('lib/results.mjs', engine)) ? 'lib/results.mjs' : 'lib/display.mjs'
const { determineTestResult, testLookup } = await load(judging)

// The package's own server would listen to everybody, at a port to be chosen.
async function origin () {
  const names = ['config', 'test', 'state']
  const modules = await Promise.all(names.map(name => load(`server/handle-${name}.mjs`)))
  const server = http.createServer((request, response) => {
    const [name, ...segments] = new URL(request.url, 'http://origin').pathname.split('/').slice(1)
    const at = names.indexOf(name)
    if (at < 0) {
      response.writeHead(404).end()
    } else {
      modules[at].default(segments, request, response)
    }
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${server.address().port}`
}

// The tests with these ids, and those on which they depend.
function named () {
  const tests = new Set()
  const add = id => {
    const test = testLookup(suites, id)
    tests.add(test)
    test.depends_on?.forEach(add)
  }
  ids.forEach(add)
  return [...tests]
}

function report (test, results) {
  const drawn = determineTestResult(suites, test.id, results)[2]
  const result = results[test.id]
  const said = result === true ? '' : result.join(': ').replaceAll(/\s+/g, ' ')
  write([test.id, test.kind ?? 'required', OUTCOMES[drawn] ?? drawn, said].join('\t'))
}

write(await origin())
const { value: cache } = await readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]().next()
if (!cache) process.exit(1)

const all = suites.flatMap(suite => suite.tests).filter(test => !test.browser_only)
const tests = ids.length ? named() : all
tests.forEach(test => { test.dump = isShown })
await runTests([{ tests }], fetch, false, cache, isShown ? 1 : TESTS_MAX)

tests.forEach(test => report(test, getResults()))
// The origin would listen for ever.
process.stdout.end(() => process.exit())
