/*
 * trial.h - what is being tried at this moment, and the faults that were found.
 */
#ifndef MEMORY_TRIAL_H
#define MEMORY_TRIAL_H

#include <stdbool.h>
#include <stddef.h>

/* The present trial, which trial_fault() names. The program fills it. */
struct trial {
    const char *way, *request;
    size_t first; /* the number of the allocation that fails; 0 = none fails */
    bool forever; /* all allocations after it fail, too */
};

extern struct trial trial;

/* A file that is removed if too many faults end the program; NULL = none. */
extern const char *trial_file;

/* Prints the present trial and a message on standard error, and counts the fault. The tenth fault
 * ends the program with status 1. */
__attribute__((format(printf, 1, 2))) void trial_fault(const char *format, ...);

/* Returns the number of faults. */
unsigned trial_faults(void);

/* Returns the seconds since an arbitrary moment. */
double trial_now(void);

/* Returns how many seconds other threads may take to free what they hold. After the first fault it
 * is half a second, because what is lost would be waited for in vain in each trial. */
double trial_patience(void);

/* Sleeps for a tenth of a millisecond. */
void trial_tick(void);

#endif
