/* process.c - reads the figures of process.h, most of them from /proc. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "process.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ------------------------------------------------------------------------------------- limits */

/* Reads the numbers of a small file; "max" is INFINITY. Returns how many there are. */
static size_t read_numbers(const char *path, double numbers[static 2]) {
    char words[2][32];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    const int count = fscanf(file, "%31s %31s", words[0], words[1]);
    fclose(file);
    for (int i = 0; i < count; i++) {
        numbers[i] = strcmp(words[i], "max") == 0 ? INFINITY : strtod(words[i], NULL);
    }
    return count < 0 ? 0 : (size_t)count;
}

/* Lowers a limit to that of one cgroup, if that is smaller. A quota is a time in each period. */
static void lower_cores(double quota, double period, double *cores) {
    if (quota > 0 && period > 0 && quota / period < *cores) {
        *cores = quota / period;
    }
}

static void read_cgroup(const char *folder, struct process_limits *limits) {
    char path[1200];
    double numbers[2], period[2];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_numbers(path, numbers) == 2) {
        lower_cores(numbers[0], numbers[1], &limits->cores);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    const bool quota = read_numbers(path, numbers) == 1;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (quota && read_numbers(path, period) == 1) {
        lower_cores(numbers[0], period[0], &limits->cores);
    }
    static const char *const names[] = {"memory.max", "memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (read_numbers(path, numbers) == 1 && numbers[0] > 0 && numbers[0] < limits->memory) {
            limits->memory = numbers[0];
        }
    }
}

/* Reads the limits of a cgroup and of those above it. A container sees its own cgroup as the root,
 * so the path that /proc names need not exist. */
static void read_cgroups(const char *mount, char *path, struct process_limits *limits) {
    char folder[1100];
    for (char *end = path + strlen(path); end != NULL; end = strrchr(path, '/')) {
        *end = '\0';
        snprintf(folder, sizeof folder, "%s%s", mount, path);
        read_cgroup(folder, limits);
    }
}

/* Returns whether a list with commas has a word. */
static bool has_word(const char *list, const char *word) {
    const size_t size = strlen(word);
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        if (length == size && memcmp(list, word, size) == 0) {
            return true;
        }
        list += length + (list[length] == ',');
    }
    return false;
}

struct process_limits process_limits(const char *root) {
    enum {
        NO_LIMIT = 60 /* version 1 writes nearly 2^63 if there is no limit */
    };
    static const char *const controllers[] = {"memory", "cpu"};
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    struct process_limits limits = {.memory = ldexp(1, NO_LIMIT)};
    limits.cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                   : online > 0                                ? (double)online
                                                               : 1;
    char line[600], mount[300];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *names = strchr(line, ':'), *path = names == NULL ? NULL : strchr(names + 1, ':');
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (names[1] == '\0') { /* version 2 */
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            read_cgroups(mount, path, &limits);
        }
        for (size_t i = 0; i < 2; i++) {
            if (has_word(names + 1, controllers[i])) {
                snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controllers[i]);
                read_cgroups(mount, path, &limits);
            }
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    limits.memory = limits.memory < ldexp(1, NO_LIMIT) ? limits.memory : 0;
    return limits;
}
