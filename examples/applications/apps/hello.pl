#!/usr/bin/perl
# A FastCGI program: says what it was asked. Listens at the socket that is its argument.
use strict;
use warnings;
use FCGI;

my $socket = FCGI::OpenSocket($ARGV[0], 100);
chmod 0666, $ARGV[0];
my %env;
my $request = FCGI::Request(\*STDIN, \*STDOUT, \*STDERR, \%env, $socket);
while ($request->Accept() >= 0) {
    read STDIN, my $body, $env{CONTENT_LENGTH} || 0;
    print "Content-Type: text/plain\r\n\r\n";
    print join ' ', $env{REQUEST_METHOD}, "[$env{SCRIPT_NAME}]", "[$env{PATH_INFO}]", length $body;
}
