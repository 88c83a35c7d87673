<?php
// A small application with Slim: routes with parts, methods, parameters and a form.
require 'Slim/autoload.php';

$app = new \Slim\App();
$app->get('/', fn ($request, $response) => $response->write('Hello from Slim'));
$app->get('/hello/{name}', fn ($request, $response, $of) => $response->write("Hello, {$of['name']}"));
$app->get('/files/{path:.*}', fn ($request, $response, $of) => $response->write($of['path']));
$app->put('/form', fn ($request, $response) => $response->write(
    json_encode($request->getQueryParams() + $request->getParsedBody()) . ' ' . $request->getMethod()
));
$app->run();
