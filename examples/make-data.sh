#!/bin/sh
# Compresses site/data/systems.json ahead of time, as far as the tools go. Needs brotli and gzip.
set -eu
cd "$(dirname "$0")/site/data"
# -n: with the time of now; a sibling that is older than the original is not sent.
brotli --force -n --quality=11 --output=systems.json.br systems.json
# Here -n is: no name and no time within, so that the same input gives the same bytes.
gzip -9 -n -c systems.json >systems.json.gz
