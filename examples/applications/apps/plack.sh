# shellcheck shell=bash
packages() { echo libplack-perl libfcgi-perl libfcgi-procmanager-perl; }
needs() { :; }
prepare() {
    mkdir "$run/plack"
    echo "body { margin: 0 }" >"$run/plack/style.css"
    head -c 3000000 /dev/zero >"$run/plack.long"
    plackup -s FCGI --listen "$run/plack.sock" --nproc 2 "$here/apps/plack.psgi" >"$run/plack.log" 2>&1 &
    started
    wait_for test -S "$run/plack.sock"
}
ask() {
    says / "front page"
    says /a/.b%2Fc "a page: /a/.b/c from 127.0.0.1"
    says /echo "POST 3000000" --data-binary "@$run/plack.long"
    says /style.css "margin"
    says "/?q=%C3%A9" "q=é"
    # As it is made: the first part before the second is there.
    says /slow "one two"
}
