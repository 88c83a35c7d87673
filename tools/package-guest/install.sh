# Installs the package. It serves its page as its own user.

check 'apt installs the package' apt-get install -y -q /trial/1.deb
equal 'the service runs' active "$(systemctl is-active lowroad.service)"
equal 'the service is enabled' enabled "$(systemctl is-enabled lowroad.service)"
fetch -o /trial/page http://localhost/
check 'it serves its page' contains /trial/page 'Lowroad serves this page'
pid=$(main_pid)
equal 'it runs as its user' 'lowroad lowroad' "$(ps -o user=,group= -p "$pid" | tr -s ' ')"
equal 'it keeps one capability' 0000000000000400 "$(sed -n 's/^CapEff:\t//p' "/proc/$pid/status")"
equal 'the helper for keys and the starter are root' root "$(ps -o user= --ppid "$pid" | sort -u)"
for folder in /run /var/log /var/lib /var/cache; do
    equal "$folder/lowroad is its own" 'lowroad:lowroad 750' "$(stat -c '%U:%G %a' $folder/lowroad)"
done
for unit in lowroad.service lowroad.socket lowroad-https.socket; do
    equal "systemd finds no fault in $unit" '' "$(systemd-analyze verify --man=no $unit 2>&1)"
done
check 'the configuration is without fault' lowroad check
check 'root can ask it' lowroad status
equal 'its threads restrict themselves' 0 "$(grep -c 'without hardening' /var/log/lowroad/error.log)"
