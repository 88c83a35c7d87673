# Varnish in front of the guest's own busybox, whose answers stay for the whole measurement.
vcl 4.1;
backend origin { .host = "127.0.0.1"; .port = "8080"; }
sub vcl_backend_response { set beresp.ttl = 1d; }
