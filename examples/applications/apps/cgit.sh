# shellcheck shell=bash
packages() { echo cgit git; }
needs() { :; }
prepare() {
    git init -q --bare "$run/repositories/one.git"
    # `scan-path` comes last: what follows it does not count for the repositories that it finds.
    printf '%s\n' virtual-root=/cgit/ "root-title=All repositories" css=/cgit-css/cgit.css logo=/cgit-css/cgit.png \
        favicon=/cgit-css/favicon.ico "scan-path=$run/repositories" >"$run/cgitrc"
}
ask() {
    says /cgit/ "All repositories"
    says /cgit/one.git/ "one.git"
    complete /cgit/
}
