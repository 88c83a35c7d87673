# Keys that only root may read, as certbot leaves them, at a reload, a start, a renewal.

openssl_quiet() {
    openssl "$@" > /trial/openssl 2>&1 || cat /trial/openssl
}

new_key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'

# Signs a certificate by the trial's authority.
issue() { # folder, file's number, name, serial number
    echo "subjectAltName = DNS:$3" > /trial/names
    # shellcheck disable=SC2086 # several options
    openssl_quiet req $new_key -keyout "$1/privkey$2.pem" -out /trial/request -subj "/CN=$3"
    openssl_quiet x509 -req -in /trial/request -CA /trial/keys/authority.pem -CAkey /trial/keys/authority.key \
        -set_serial "$4" -days 20 -extfile /trial/names -out "$1/cert$2.pem"
    cp /trial/keys/authority.pem "$1/chain$2.pem"
    cat "$1/cert$2.pem" "$1/chain$2.pem" > "$1/fullchain$2.pem"
    chmod 600 "$1/privkey$2.pem"
}

# Does what certbot does with a certificate.
certbot() { # name, number
    live=/etc/letsencrypt/live/$1
    archive=/etc/letsencrypt/archive/$1
    mkdir -p "$live" "$archive"
    chmod 700 /etc/letsencrypt/live /etc/letsencrypt/archive
    issue "$archive" "$2" "$1" "0x$2"
    for file in cert chain fullchain privkey; do
        ln -sfn "../../archive/$1/$file$2.pem" "$live/$file.pem"
    done
}

mkdir -p /trial/keys/ca.test
# shellcheck disable=SC2086 # several options
openssl_quiet req -x509 $new_key -keyout /trial/keys/authority.key -out /trial/keys/authority.pem -days 30 \
    -subj /CN=Trial -addext keyUsage=critical,keyCertSign
issue /trial/keys/ca.test '' ca.test 0x77
cp /trial/keys/authority.pem /trial/authorities.pem
echo '127.0.0.1 a.test b.test acme.test ca.test' >> /etc/hosts

certbot a.test 1
cat >> $config <<'TOML'

[[site]]
names = ["a.test"]
listen = ["*:80"]
root = "/usr/share/lowroad/site"
[site.tls]
listen = ["*:443"]
certificate = "/etc/letsencrypt/live/a.test/fullchain.pem"
key = "/etc/letsencrypt/live/a.test/privkey.pem"
TOML
check 'root-only keys are without fault' lowroad check
check 'a reload reads root-only keys and opens port 443' systemctl reload lowroad.service
check 'https works' fetch -o /dev/null https://a.test/
equal 'the certificate is the first' serial=01 "$(serial a.test)"
certbot a.test 2
check 'a reload after a renewal' systemctl reload lowroad.service
equal 'the certificate is the second' serial=02 "$(serial a.test)"
certbot a.test 3
check 'a start with root-only keys' systemctl restart lowroad.service
equal 'the certificate is the third' serial=03 "$(serial a.test)"
chmod 600 $config
check 'a reload of a configuration that only root may read' systemctl reload lowroad.service
check 'a start with a configuration that only root may read' systemctl restart lowroad.service
chmod 644 $config
# The server finds this renewal by itself: see reload.sh.
certbot a.test 4
