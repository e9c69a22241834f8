/* process.c - reads the figures of process.h, most of them from /proc. */
#include "process.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    double count = 0;
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder == NULL) {
        return 0;
    }
    closedir(folder);
    return count - 3; /* ".", ".." and the descriptor of the folder do not count */
}

/* Returns when the process started, in seconds since 1970. /proc/self/stat has this time in ticks
 * since the machine booted, as field 22. */
static double start_time(void) {
    struct timespec real, boot;
    unsigned long long ticks = 0;
    char text[1024] = "";
    FILE *stat = fopen("/proc/self/stat", "r");
    if (stat == NULL) {
        return 0;
    }
    const size_t size = fread(text, 1, sizeof text - 1, stat);
    fclose(stat);
    text[size] = '\0';
    /* The name of the program ends here; it may hold spaces and parentheses. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL || sscanf(at, " %llu", &ticks) != 1) {
        return 0;
    }
    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    return (double)(real.tv_sec - boot.tv_sec) + (double)(real.tv_nsec - boot.tv_nsec) * 1e-9 +
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double started;

static void find_start_time(void) {
    started = start_time();
}

struct process_usage process_usage(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct rusage usage = {0};
    struct rlimit files = {0};
    unsigned long pages = 0, resident = 0;
    const double page = (double)sysconf(_SC_PAGESIZE);
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm != NULL) {
        if (fscanf(statm, "%lu %lu", &pages, &resident) != 2) {
            pages = resident = 0;
        }
        fclose(statm);
    }
    getrusage(RUSAGE_SELF, &usage);
    getrlimit(RLIMIT_NOFILE, &files);
    pthread_once(&once, find_start_time);
    return (struct process_usage){
        .cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6,
        .resident_bytes = (double)resident * page,
        .virtual_bytes = (double)pages * page,
        .open_files = open_files(),
        .max_files = (double)files.rlim_cur,
        .start_time = started,
    };
}
