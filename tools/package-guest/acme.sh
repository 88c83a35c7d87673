# A certificate of a test authority.

systemd-run -q --unit=dns /trial/pebble-challtestsrv -dnsserver 127.0.0.1:8053 -management 127.0.0.1:8055 -doh '' \
    -http01 '' -https01 '' -tlsalpn01 '' -defaultIPv4 127.0.0.1 -defaultIPv6 ''
systemd-run -q --unit=pebble --setenv=PEBBLE_VA_NOSLEEP=1 \
    /trial/pebble -config /trial/pebble.json -dnsserver 127.0.0.1:8053
wait_until fetch -o /dev/null https://ca.test:14000/dir

cp /trial/keys/authority.pem /etc/ssl/authority.pem
cat >> $config <<'TOML'

[acme]
terms_agreed = true
contact = "mailto:admin@example.com"
[[acme.authority]]
directory = "https://ca.test:14000/dir"
roots = "/etc/ssl/authority.pem"

[[site]]
names = ["acme.test"]
listen = ["*:80"]
root = "/srv/b"
[site.tls]
listen = ["*:443"]
automatic = true
TOML
cp $config /trial/acme.toml
check 'a reload with [acme]' systemctl reload lowroad.service
has_certificate() { serial acme.test | grep -q serial=; }
check 'a certificate comes' wait_until has_certificate
fetch https://ca.test:15000/roots/0 > /trial/pebble-root
cat /trial/pebble-root >> /trial/authorities.pem
equal 'https with it works' 'site b' "$(fetch https://acme.test/)"
folder=/var/lib/lowroad/acme
equal 'its folder' 'lowroad:lowroad 700' "$(stat -c '%U:%G %a' $folder)"
equal 'its file' 'lowroad:lowroad 600' "$(stat -c '%U:%G %a' $folder/names/acme.test/certificate.pem)"
check 'the configuration and the folder are without fault' lowroad check
serial acme.test > /trial/acme-serial
systemctl restart lowroad.service
equal 'it is kept over a restart' "$(cat /trial/acme-serial)" "$(serial acme.test)"
