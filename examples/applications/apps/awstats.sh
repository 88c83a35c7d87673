# shellcheck shell=bash
packages() { echo awstats; }
needs() { :; }
prepare() {
    cat >"$run/awstats.test.conf" <<EOF
LogFile="$run/access.log"
LogFormat=1
SiteDomain="test"
DirData="$run"
DirIcons="/awstats-icon"
EOF
    echo '192.0.2.7 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 7 "-" "Mozilla/5.0"' >"$run/access.log"
    /usr/lib/cgi-bin/awstats.pl -config=test -configdir="$run" -update >/dev/null
}
ask() {
    says "/cgi-bin/awstats.pl?config=test&configdir=$run" "Statistics for test"
    complete "/cgi-bin/awstats.pl?config=test&configdir=$run&framename=mainright"
}
