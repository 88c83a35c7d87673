/* A module in C that greets, as WebAssembly: `make` builds hello.wasm. The same source makes a
 * shared library. */
#include "lowroad.h"

LOWROAD_EXPORT(lowroad_handle)
int lowroad_handle(void *state, lowroad_call *call, int event, uint32_t number)
{
    char name[64];
    (void)state, (void)event, (void)number;
    lowroad_field(call, "Content-Type", "text/plain; charset=utf-8");
    lowroad_print(call, "Hello, ");
    lowroad_print(call, lowroad_get(call, LOWROAD_PARAMETER, "name", name, sizeof(name)) < 0 ? "World" : name);
    lowroad_print(call, ", from C\n");
    return LOWROAD_DONE;
}
