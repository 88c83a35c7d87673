# Reloads: a change comes into force, a mistake leaves the old configuration in force. Before that the certificate that
# certbot has renewed, which comes into force without one.

has_renewed() { [ "$(serial a.test)" = serial=04 ]; }
check 'a renewal by certbot is found without a reload' wait_until has_renewed

mkdir -p /srv/b /srv/cgi
echo 'site b' > /srv/b/index.html
printf '#!/bin/sh\necho "Content-Type: text/plain"; echo; id -un\n' > /srv/cgi/who
chmod 755 /srv/cgi/who
cat >> $config <<'TOML'

[[site]]
names = ["b.test"]
listen = ["*:80", "*:81"]
root = "/srv/b"
[[site.route]]
pattern = "/cgi/**"
cgi = "/srv/cgi"
TOML
pid=$(main_pid)
check 'a reload with another site and port' systemctl reload lowroad.service
equal 'the site is there' 'site b' "$(fetch http://b.test/)"
equal 'so is the port below 1024' 'site b' "$(fetch http://b.test:81/)"
equal 'a CGI program runs as the user' lowroad "$(fetch http://b.test/cgi/who)"

cp $config /trial/right.toml
for mistake in port key root; do
    case $mistake in
    port) change='s/\*:81/*:8x/' ;;
    key) change='s/^names = ."b.test".*/&\ncolour = "red"/' ;;
    root) change='s|/srv/b|/srv/none|' ;;
    esac
    sed "$change" /trial/right.toml > $config
    if systemctl reload lowroad.service 2> /trial/reload; then
        failed "a reload with a wrong $mistake fails" "$(cat /trial/reload)"
    else
        echo "ok: a reload with a wrong $mistake fails"
    fi
    journalctl -u lowroad.service -n 4 -o cat --no-pager > /trial/reload
    check 'the journal names file and line or path' grep -E 'lowroad.toml:[0-9]+:[0-9]+: .*(8x|colour)|/srv/none' /trial/reload
    equal 'the service runs on' "active $pid" "$(systemctl is-active lowroad.service) $(main_pid)"
    equal 'with the old configuration' 'site b' "$(fetch http://b.test/)"
done
cp /trial/right.toml $config
check 'a reload with the mistake mended' systemctl reload lowroad.service
equal 'by the same process' "$pid" "$(main_pid)"
