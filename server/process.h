/*
 * process.h - what the kernel says of this process: its CPU time, memory and files. A leaf: knows
 * nothing of the rest of the server.
 */
#ifndef PROCESS_H
#define PROCESS_H

/* What cannot be found out is 0. */
struct process_usage {
    double cpu_seconds; /* user and system */
    double resident_bytes, virtual_bytes;
    double open_files, max_files;
    double start_time; /* seconds since 1970; the same at each call */
};

/* From any thread. */
struct process_usage process_usage(void);

#endif
