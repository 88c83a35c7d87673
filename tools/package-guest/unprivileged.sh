# The drop-in without root and capabilities, with the socket units.

cp $config /trial/privileged.toml
# The guest has no /usr/share/doc.
mkdir -p /etc/systemd/system/lowroad.service.d
dpkg-deb --fsys-tarfile /trial/1.deb |
    tar -xO ./usr/share/doc/lowroad/examples/lowroad-unprivileged.conf > /etc/systemd/system/lowroad.service.d/unprivileged.conf
cat > $config <<'TOML'
[server]
user = "lowroad"
[log]
access = "/var/log/lowroad/access.log"
[[site]]
names = ["a.test"]
listen = ["*:80"]
root = "/usr/share/lowroad/site"
[site.tls]
listen = ["*:443"]
certificate = "/etc/letsencrypt/live/a.test/fullchain.pem"
key = "/run/credentials/lowroad.service/a.key"
TOML
# A certificate is no secret, but certbot's folder hides it.
chmod 711 /etc/letsencrypt/live /etc/letsencrypt/archive
printf '[Service]\nLoadCredential=a.key:/etc/letsencrypt/live/a.test/privkey.pem\n' > \
    /etc/systemd/system/lowroad.service.d/keys.conf
systemctl daemon-reload
check 'it starts without privileges' systemctl restart lowroad.service
pid=$(main_pid)
equal 'no capability' 0000000000000000 "$(sed -n 's/^CapBnd:\t//p' "/proc/$pid/status")"
equal 'no process of the unit is root' '' \
    "$(systemctl show -P ControlGroup lowroad.service | xargs -I{} cat /sys/fs/cgroup{}/cgroup.procs | xargs ps -o user= -p | grep root)"
check 'https works with a key that only root may read' fetch -o /dev/null https://a.test/
check 'a reload without privileges' systemctl reload lowroad.service
check 'an upgrade without privileges' lowroad upgrade
equal 'another process' active "$([ "$pid" != "$(main_pid)" ] && systemctl is-active lowroad.service)"
check 'https works after it' fetch -o /dev/null https://a.test/
check 'exposure of at most 1.3' systemd-analyze security --no-pager --threshold=13 lowroad.service

rm -r /etc/systemd/system/lowroad.service.d
cp /trial/privileged.toml $config
systemctl daemon-reload
check 'it starts with privileges again' systemctl restart lowroad.service
equal 'as before' 'site b' "$(fetch http://b.test/)"
