# Removal keeps the configuration, purging takes all away. Then the journal and the error log of the whole trial.

systemctl disable -q --now lowroad.service
systemctl enable -q --now lowroad.socket lowroad-https.socket
systemctl enable -q --now lowroad.service
zcat -f /var/log/lowroad/error.log* > /trial/error-log
check 'dpkg removes the package' dpkg -r lowroad
equal 'no process is left' '' "$(pgrep -a lowroad)"
equal 'the port is closed' '' "$(ss -Hltn 'sport = :80')"
check 'the configuration stays' cmp $config /trial/acme.toml
check 'the log stays' test -s /var/log/lowroad/access.log
check 'dpkg installs it again' dpkg -i /trial/2.deb
equal 'it serves as before' 'site b' "$(fetch http://b.test/)"
equal 'over its sockets' 'active active' "$(systemctl is-active lowroad.socket lowroad-https.socket | xargs)"
check 'apt purges it' apt-get purge -y -q lowroad
equal 'nothing of it is left' '' \
    "$(find / -xdev -iname '*lowroad*' -not -path '/trial/*' -not -path '/proc/*' -not -path '/sys/*')"
equal 'no unit of it failed' '' "$(systemctl list-units --failed --no-legend --plain 'lowroad*')"

# What the mistakes of reload.sh lead to.
expected='Reload failed for lowroad.service'
equal 'the journal has no other error' '' \
    "$(journalctl --no-pager -o cat -p err -g lowroad | grep -vF "$expected")"
equal 'systemd warns of nothing else' '' \
    "$(journalctl --no-pager -o cat -p warning -g lowroad _PID=1 | grep -vF "$expected")"
equal 'systemd has to kill no process' '' "$(journalctl --no-pager -o cat -g 'lowroad.*Killing' _PID=1)"
equal 'the error log has no warnings' '' \
    "$(grep -E '^[^ ]+ (warn|error) ' /trial/error-log | grep -vF 'the previous configuration stays in force')"
