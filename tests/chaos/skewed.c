/* Loaded into workers and producers by the campaign: the time of day is wrong by as many seconds as the file SKEWED says,
   and follows when that is changed. How much time has passed (CLOCK_MONOTONIC) stays right, as on a real machine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long skew(void) {
  static volatile long long *seconds = 0;
  static int looked = 0;
  if (!looked) {
    const char *path = getenv("SKEWED");
    int fd = path ? open(path, O_RDONLY) : -1;
    looked = 1;
    if (fd >= 0) {
      void *map = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, fd, 0);
      if (map != MAP_FAILED) seconds = map;
      close(fd);
    }
  }
  return seconds ? *seconds : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int result = syscall(SYS_clock_gettime, clock, at);
  if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += skew();
  return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
