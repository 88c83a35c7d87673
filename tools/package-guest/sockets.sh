# The socket units: systemd opens the ports, by name for http and https, and no client is refused.

systemctl stop lowroad.service
check 'the socket units start' systemctl enable -q --now lowroad.socket lowroad-https.socket
equal 'the service waits' inactive "$(systemctl is-active lowroad.service)"
equal 'a request starts it' 'site b' "$(fetch http://b.test/)"
equal 'it runs' active "$(systemctl is-active lowroad.service)"
check 'https works over the socket of that name' fetch -o /dev/null https://a.test/
equal 'with the certificate of the authority, too' 'site b' "$(fetch https://acme.test/)"
equal 'ports without a socket are closed' '' "$(ss -Hltn 'sport = :81')"
begin_load
check 'a restart under load' systemctl restart lowroad.service
check 'a reload under load' systemctl reload lowroad.service
equal 'no request fails' '' "$(end_load)"
