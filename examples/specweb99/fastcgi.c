/* The dynamic set as a FastCGI program: a process answers one request after the other. It gets its
 * socket from spawn-fcgi or a server that starts it, or opens it itself and starts its processes:
 *
 *     SPECWEB99_DATA=/srv/data spawn-fcgi -s /run/specweb99.sock -F 8 ./specweb99-fastcgi
 *     SPECWEB99_DATA=/srv/data ./specweb99-fastcgi /run/specweb99.sock 8
 *
 * The data folder is the parameter SPECWEB99_DATA of a request, or the variable. */
#include <fcgiapp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway.h"

static const char *variable(void *context, const char *name)
{
    FCGX_Request *request = context;
    return FCGX_GetParam(name, request->envp);
}

static size_t read_body(void *context, char *into, size_t len)
{
    FCGX_Request *request = context;
    int count = FCGX_GetStr(into, (int)len, request->in);
    return count > 0 ? (size_t)count : 0;
}

static int write_out(void *context, const char *bytes, size_t len)
{
    FCGX_Request *request = context;
    return FCGX_PutStr(bytes, (int)len, request->out) == (int)len;
}

/* The folder of the request; data in memory goes with the folder it is from. */
static struct spec_files *files_of(FCGX_Request *request, struct spec_files *files)
{
    const char *folder = FCGX_GetParam("SPECWEB99_DATA", request->envp);
    if (!folder)
        folder = getenv("SPECWEB99_DATA");
    if (folder && files->folder[0] && strcmp(folder, files->folder) == 0)
        return files;
    files_end(files);
    return files_begin(files, folder ? folder : "", getpid(), 1) ? files : NULL;
}

static int serve(int listener)
{
    FCGX_Request request;
    struct spec_files files;
    memset(&files, 0, sizeof files);
    if (FCGX_Init() != 0 || FCGX_InitRequest(&request, listener, 0) != 0)
        return 1;
    while (FCGX_Accept_r(&request) == 0) {
        struct gateway gateway = {&request, variable, read_body, write_out};
        gateway_answer(&gateway, files_of(&request, &files));
        FCGX_Finish_r(&request);
    }
    return 0;
}

/* Starts processes, which end when this one does, and waits for the first that ends. */
static int serve_with(const char *path, int processes)
{
    enum { BACKLOG = 4096 };
    int listener = FCGX_OpenSocket(path, BACKLOG);
    if (listener < 0) {
        fprintf(stderr, "specweb99-fastcgi: cannot listen at %s\n", path);
        return 1;
    }
    pid_t parent = getpid();
    for (int at = 0; at < processes; at++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            return getppid() == parent ? serve(listener) : 1;
        }
    }
    wait(NULL);
    return 1;
}

int main(int count, char **words)
{
    int processes = count == 3 ? atoi(words[2]) : 0;
    if (count == 1)
        return serve(0);
    if (processes < 1 || processes > 1024) {
        fprintf(stderr, "specweb99-fastcgi [SOCKET PROCESSES]: up to 1024 of them\n");
        return 2;
    }
    return serve_with(words[1], processes);
}
