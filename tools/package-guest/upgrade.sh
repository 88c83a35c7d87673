# Upgrades: the new program runs, with the configuration that there was.

version() { dpkg-query -W -f '${Version}' lowroad; }
upgraded() { # name, version's end, MainPID before
    equal "$1: the version" "-$2" "-$(version | sed 's/.*-//')"
    equal "$1: the program is the new one" /usr/bin/lowroad "$(readlink "/proc/$(main_pid)/exe")"
    [ "$3" != "$(main_pid)" ] || failed "$1: another process" "still $3"
    equal "$1: the configuration stays" "$before" "$(md5sum $config)"
    equal "$1: it is in force" 'site b' "$(fetch http://b.test/)"
    equal "$1: CGI programs run" lowroad "$(fetch http://b.test/cgi/who)"
    equal "$1: the certificate stays" "$(cat /trial/acme-serial)" "$(serial acme.test)"
}

before=$(md5sum $config)
pid=$(main_pid)
begin_load
check 'apt upgrades the package' apt-get install -y -q /trial/2.deb
equal 'no request fails while socket units have the ports' '' "$(end_load)"
upgraded 'with sockets' 2 "$pid"

check 'the socket units can be taken away' systemctl disable -q --now lowroad.socket lowroad-https.socket
check 'the service opens the ports itself again' systemctl restart lowroad.service
pid=$(main_pid)
begin_load
check 'dpkg goes back to the version before' dpkg -i /trial/1.deb
equal 'no request fails while the new process takes over the ports' '' "$(end_load)"
upgraded 'without sockets' 1 "$pid"

systemctl disable -q --now lowroad.service
check 'an upgrade of a service that is off' dpkg -i /trial/2.deb
equal 'it stays off' 'inactive disabled' "$(systemctl is-active lowroad.service) $(systemctl is-enabled lowroad.service)"
systemctl enable -q --now lowroad.service

echo 'colour = "red"' >> $config
check 'an upgrade with a mistake in the configuration' dpkg -i /trial/1.deb
equal 'the server of before runs on' 'site b' "$(fetch http://b.test/)"
cp /trial/acme.toml $config
check 'the mistake mended' systemctl restart lowroad.service
equal 'the new program serves' 'site b' "$(fetch http://b.test/)"
