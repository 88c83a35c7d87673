// An origin with Go's HTTP server: HTTP/2 in clear text, over TLS, and TLS without HTTP/2. Prints the three ports.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"
)

func certificate() tls.Certificate {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, _ := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func main() {
	http.HandleFunc("/protocol", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	http.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) })
	http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 1<<20)
		for i := 0; i < 32; i++ {
			w.Write(part)
		}
	})
	listen := func(h1, h2, clearH2 bool) (*http.Server, net.Listener) {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(h1)
		protocols.SetHTTP2(h2)
		protocols.SetUnencryptedHTTP2(clearH2)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		config := &tls.Config{Certificates: []tls.Certificate{certificate()}}
		return &http.Server{Protocols: protocols, TLSConfig: config}, listener
	}
	clear, clearListener := listen(true, false, true)
	both, bothListener := listen(true, true, false)
	old, oldListener := listen(true, false, false)
	go clear.Serve(clearListener)
	go both.ServeTLS(bothListener, "", "")
	go old.ServeTLS(oldListener, "", "")
	port := func(it net.Listener) int { return it.Addr().(*net.TCPAddr).Port }
	fmt.Println(port(clearListener), port(bothListener), port(oldListener))
	select {}
}
