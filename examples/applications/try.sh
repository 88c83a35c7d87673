#!/bin/bash
# Serves real applications from Debian's packages by Lowroad, each by the configuration that stands beside its script in
# apps/, asks each what only it can say, and takes all of it away again. As root, since php-fpm and MariaDB run as www-data.
#
#     examples/applications/try.sh target/debug/lowroad [NAME…]
#
# A script says which `packages` it needs and whether it `needs` php-fpm or a database, makes ready what it serves
# (`prepare`), and asks (`ask`). RUN in a configuration is a folder of this script.
set -eu
lowroad=$(realpath "${1:-target/debug/lowroad}")
shift || true
here=$(dirname "$(realpath "$0")")
# shellcheck source=examples/applications/tools.sh
. "$here/tools.sh"

all=()
for script in "$here"/apps/*.sh; do
    name=$(basename "$script" .sh)
    [[ $# = 0 || " $* " = *" $name "* ]] && all+=("$name")
done
[[ ${#all[@]} -gt 0 ]] || { echo "no application of these names: $*" >&2; exit 1; }

of() { (. "$here/apps/$1.sh" && "$2"); }
wanted=$(for name in "${all[@]}"; do of "$name" packages; done)
needed=$(for name in "${all[@]}"; do of "$name" needs; done)
# shellcheck disable=SC2086 # lists of names
"$here/../../tools/packages.sh" curl $wanted
case $needed in *database*) start_database ;; esac
case $needed in *php*) start_php ;; esac

cat "$here/lowroad.toml" >"$run/lowroad.toml"
for name in "${all[@]}"; do
    . "$here/apps/$name.sh"
    prepare
    sed "s#RUN#$run#g" "$here/apps/$name.toml" >>"$run/lowroad.toml"
done
RUNTIME_DIRECTORY=$run "$lowroad" run --config "$run/lowroad.toml" >"$run/lowroad.log" 2>&1 &
started
wait_for curl -s "http://127.0.0.1:18100/"
for name in "${all[@]}"; do
    . "$here/apps/$name.sh"
    site=http://$name.test:18100
    ask
done
echo "all of them work: ${all[*]}"
