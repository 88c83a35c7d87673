# After a restart of the machine.

for unit in lowroad.service lowroad.socket lowroad-https.socket; do
    equal "$unit is active after a restart of the machine" active "$(systemctl is-active $unit)"
done
equal 'http works' 'site b' "$(fetch http://b.test/)"
check 'https works' fetch -o /dev/null https://a.test/
equal 'the certificate of the authority is kept' "$(cat /trial/acme-serial)" "$(serial acme.test)"
equal 'without another order' 0 "$(counter acme.orders)"
