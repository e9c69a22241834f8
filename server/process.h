/*
 * process.h - what the kernel says about this process: its CPU time, memory and files. It knows
 * nothing of the rest of the server.
 */
#ifndef PROCESS_H
#define PROCESS_H

/* A figure that cannot be found out is 0. */
struct process_usage {
    double cpu_seconds; /* in user and in kernel mode */
    double resident_bytes, virtual_bytes;
    double open_files, max_files;
    double start_time; /* seconds since 1970; the same at each call */
};

/* Returns the present figures. Any thread may call it. */
struct process_usage process_usage(void);

/* What the process may use: the limits of its cgroups, which a container engine sets. */
struct process_limits {
    double cores;  /* the cores of its affinity, or the CPU quota if that is less */
    double memory; /* bytes; 0: there is no limit */
};

/* Finds the limits in cgroups of version 1 or 2. /proc and /sys are below `root`, which is ""
 * except in tests. */
struct process_limits process_limits(const char *root);

#endif
