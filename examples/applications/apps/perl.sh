# shellcheck shell=bash
packages() { echo libfcgi-perl; }
needs() { :; }
prepare() {
    "$here/apps/hello.pl" "$run/perl.sock" &
    started
    wait_for test -S "$run/perl.sock"
}
ask() {
    says /perl/a/.b%2Fc "GET [/perl] [/a/.b/c] 0"
    says /perl/ "REPORT [/perl] [/] 5" -X REPORT -d hello
    head -c 3000000 /dev/zero >"$run/long"
    says /perl/x "POST [/perl] [/x] 3000000" -H "Transfer-Encoding: chunked" --data-binary "@$run/long"
}
