/* A wall clock that a test steps: adds an offset, in seconds, to the real-time clocks of the processes that preload this
 * library. The file in $WALL_CLOCK_OFFSET contains the offset as 8 bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none;
static const volatile int64_t *offset_s = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

/* Before main, since the program restricts its system calls later. */
__attribute__((constructor)) static void map_offset(void)
{
	const char *path = getenv("WALL_CLOCK_OFFSET");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (page != MAP_FAILED)
		offset_s = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	/* Constructors of other libraries may read the clock first. */
	if (!real_clock_gettime)
		real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real_clock_gettime(clock, now);
	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *offset_s;
	return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	(void)zone;
	struct timespec time;
	int result = clock_gettime(CLOCK_REALTIME, &time);
	now->tv_sec = time.tv_sec;
	now->tv_usec = time.tv_nsec / 1000;
	return result;
}

time_t time(time_t *result)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}
