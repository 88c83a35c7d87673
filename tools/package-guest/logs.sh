# logrotate: the server writes to the new file, and no line is lost.

log=/var/log/lowroad/access.log

fetch -o /dev/null 'http://localhost/?one'
check 'a request is logged' wait_until contains $log '/?one'
check 'logrotate rotates' logrotate -f /etc/logrotate.d/lowroad
fetch -o /dev/null 'http://localhost/?two'
check 'the new file is written to' wait_until contains $log '/?two'
check 'the old one is kept' contains $log.1 '/?one'
equal 'the new file has only what came later' '' "$(grep -F '/?one' $log)"
equal 'its owner and mode' 'lowroad:lowroad 640' "$(stat -c '%U:%G %a' $log)"
# As the timer does it, a week later.
sed -i 's/^\("[^"]*lowroad[^"]*"\) .*/\1 2020-1-1-0:0:0/' /var/lib/logrotate/status
check "systemd's timer rotates" systemctl start logrotate.service
check 'the older one is compressed' test -s $log.2.gz
fetch -o /dev/null 'http://localhost/?three'
check 'the new file is written to again' wait_until contains $log '/?three'
check 'the file before has its line' contains $log.1 '/?two'
