/* The dynamic set as a FastCGI program: a process answers one request after the other. spawn-fcgi
 * starts as many as are wanted, and gives them the socket:
 *
 *     SPECWEB99_DATA=/srv/data spawn-fcgi -s /run/specweb99.sock -F 8 ./specweb99-fastcgi
 *
 * The data folder is the parameter SPECWEB99_DATA of a request, or the variable. */
#include <fcgiapp.h>
#include <stdlib.h>
#include <string.h>
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

int main(void)
{
    FCGX_Request request;
    struct spec_files files;
    memset(&files, 0, sizeof files);
    if (FCGX_Init() != 0 || FCGX_InitRequest(&request, 0, 0) != 0)
        return 1;
    while (FCGX_Accept_r(&request) == 0) {
        struct gateway gateway = {&request, variable, read_body, write_out};
        gateway_answer(&gateway, files_of(&request, &files));
        FCGX_Finish_r(&request);
    }
    return 0;
}
