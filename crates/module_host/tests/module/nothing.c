/* A library that is not a module, or lacks lowroad_handle. */
#if defined(OTHER_ABI)
unsigned lowroad_abi(void);
unsigned lowroad_abi(void) { return OTHER_ABI; }
int lowroad_load(const void *host);
int lowroad_load(const void *host) { return host == 0; }
#elif defined(ENTRIES)
#include <lowroad.h>
#endif
int nothing(void);
int nothing(void) { return 0; }
