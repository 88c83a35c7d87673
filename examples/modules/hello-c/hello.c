/* Greets: GET /hello?name=You. Build: cc -shared -fPIC -O2 -I../../../crates/module/include -o hello.so hello.c */
#include <lowroad.h>

struct worker {
    char greeting[64];
};

/* All workers say the same, so one is enough; a module with state of its own allocates it in
 * lowroad_start. */
static struct worker only;

void *lowroad_start(lowroad_call *worker)
{
    if (lowroad_get(worker, LOWROAD_SETTING, "greeting", only.greeting, sizeof only.greeting) < 0) {
        only.greeting[0] = 'H';
        only.greeting[1] = 'i';
        only.greeting[2] = 0;
    }
    return &only;
}

int lowroad_handle(void *state, lowroad_call *call, int event, uint32_t number)
{
    struct worker *worker = state;
    char name[64];
    (void)event;
    (void)number;
    lowroad_field(call, "Content-Type", "text/plain; charset=utf-8");
    lowroad_print(call, worker->greeting);
    lowroad_print(call, ", ");
    lowroad_print(call, lowroad_get(call, LOWROAD_PARAMETER, "name", name, sizeof name) > 0 ? name : "world");
    lowroad_print(call, "!\n");
    return LOWROAD_DONE;
}
