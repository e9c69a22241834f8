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

#endif
