# The trial, in the guest: what trial.service starts. The parts come in this order, with a restart of the machine between.
cd /trial || exit 1
. ./lib.sh

if [ -e /trial/restarted ]; then
    parts='boot upgrade remove'
else
    parts='install keys logs reload acme sockets unprivileged'
fi
for part in $parts; do
    echo "# $part, $(cut -d. -f1 /proc/uptime) s after the start of the machine"
    . "./$part.sh"
done
if [ -e /trial/restarted ]; then
    if [ -e /trial/failed ]; then
        echo '# the journal'
        journalctl --no-pager -o short-monotonic -u 'lowroad*' | tail -n 300
        echo '# the error log'
        cat /trial/error-log
    fi
    echo done
    systemctl poweroff
else
    touch /trial/restarted
    systemctl reboot
fi
