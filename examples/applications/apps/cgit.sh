# shellcheck shell=bash
packages() { echo cgit git; }
needs() { :; }
prepare() {
    git init -q --bare "$run/repositories/one.git"
    printf 'scan-path=%s\nvirtual-root=/cgit/\nroot-title=All repositories\n' "$run/repositories" >"$run/cgitrc"
}
ask() {
    says /cgit/ "All repositories"
    says /cgit/one.git/ "one.git"
}
