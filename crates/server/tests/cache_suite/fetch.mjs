// As much of the Fetch API as the client of http-cache-tests asks for. Node's own has a cache's manners: it adds
// Cache-Control and Pragma to conditional requests, which changes what is tested. This one sends what node-fetch does,
// with which the published lists are made: each request on a connection of its own. It follows no redirects.

import http from 'node:http'

const SILENCE_MS_MAX = 10_000

const OWN_FIELDS = [
  ['User-Agent', 'http-cache-tests'],
  ['Accept', '*/*'],
  ['Accept-Encoding', 'gzip,deflate'],
  ['Connection', 'close']
]

// The fields of a response; lines of one name are joined.
class Headers {
  #values = new Map()

  constructor (fields) {
    for (const [name, value] of Object.entries(fields)) {
      this.#values.set(name, Array.isArray(value) ? value.join(', ') : value)
    }
  }

  get (name) { return this.#values.get(name.toLowerCase()) ?? null }
  has (name) { return this.#values.has(name.toLowerCase()) }
  forEach (call) { this.#values.forEach((value, name) => call(value, name)) }
  [Symbol.iterator] () { return this.#values.entries() }
}

// Node's form of a request's fields: a line for each value of a name.
function linesOf (given) {
  const lines = new Map()
  const isGiven = name => given.some(([known]) => known.toLowerCase() === name.toLowerCase())
  const own = OWN_FIELDS.filter(([name]) => !isGiven(name))
  for (const [name, value] of [...own, ...given]) {
    const [first, values] = lines.get(name.toLowerCase()) ?? [name, []]
    lines.set(name.toLowerCase(), [first, [...values, String(value)]])
  }
  // A list of one would be refused for names that come once, like Host.
  return Object.fromEntries([...lines.values()].map(([name, values]) => [name, values.length > 1 ? values : values[0]]))
}

async function textOf (message) {
  const parts = []
  for await (const part of message) parts.push(part)
  return Buffer.concat(parts).toString()
}

function isRedirect (message) {
  return [301, 302, 303, 307, 308].includes(message.statusCode) && 'location' in message.headers
}

export default function fetch (url, { method = 'GET', headers = [], body, redirect } = {}) {
  return new Promise((resolve, reject) => {
    const interimResponses = []
    const request = http.request(url, { method, headers: linesOf(headers), agent: false }, message => {
      if (redirect !== 'manual' && isRedirect(message)) {
        request.destroy(new Error('a redirect, and this client follows none'))
        return
      }
      const text = textOf(message)
      text.catch(() => {}) // Who asks for the text is told.
      resolve({
        status: message.statusCode,
        statusText: message.statusMessage,
        headers: new Headers(message.headers),
        interimResponses,
        text: () => text
      })
    })
    request.on('information', ({ statusCode, headers }) => interimResponses.push([statusCode, headers]))
    request.setTimeout(SILENCE_MS_MAX, () => request.destroy(new Error(`nothing came for ${SILENCE_MS_MAX} ms`)))
    request.on('error', reject)
    request.end(body)
  })
}
