# A small PSGI application: pages by path, a body that is counted, a response that comes in parts.
use strict;
use warnings;
use Plack::Builder;
use Plack::Request;

builder {
    mount '/echo' => sub {
        my $request = Plack::Request->new(shift);
        [200, ['Content-Type' => 'text/plain'], [$request->method, ' ', length $request->content]];
    };
    mount '/slow' => sub {
        sub {
            my $writer = shift->([200, ['Content-Type' => 'text/plain']]);
            $writer->write($_) for 'one ', 'two';
            $writer->close;
        };
    };
    mount '/' => sub {
        my $request = Plack::Request->new(shift);
        my $text = $request->path_info eq '/' ? 'front page' : 'a page: ' . $request->path_info . ' from ' . $request->address;
        [200, ['Content-Type' => 'text/plain; charset=utf-8'], [$text, ' q=', $request->param('q') // '']];
    };
};
