<?php
// A small application with Symfony: a kernel with its controllers.
require 'Symfony/Bundle/FrameworkBundle/autoload.php';

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

final class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle()];
    }

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'a secret', 'router' => ['utf8' => true]]);
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('front', '/')->controller([$this, 'front']);
        $routes->add('hello', '/hello/{name}')->controller([$this, 'hello']);
        $routes->add('post', '/post')->controller([$this, 'post'])->methods(['POST']);
        $routes->add('file', '/file')->controller([$this, 'file']);
    }

    public function front(Request $request): Response
    {
        return new Response("Hello from Symfony, base {$request->getBaseUrl()}");
    }

    public function hello(Request $request, string $name): Response
    {
        return new Response("Hello, $name of {$request->getSchemeAndHttpHost()}");
    }

    public function post(Request $request): Response
    {
        return new Response(json_encode($request->toArray()));
    }

    public function file(): Response
    {
        BinaryFileResponse::trustXSendfileTypeHeader();
        return new BinaryFileResponse(dirname(__DIR__) . '/private/file.txt', 200, ['Content-Type' => 'text/plain']);
    }
}

$kernel = new Kernel('prod', false);
$request = Request::createFromGlobals();
$request->headers->set('X-Sendfile-Type', 'X-Sendfile');
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
