/*
 * blas_setup.h - the environment of OpenBLAS. OpenBLAS decides two things when it is loaded, before
 * main. It chooses its kernels from a table of CPU models, and a model that is newer than the table
 * gets kernels from 2004. It also decides how many threads it starts. The daemon does not need
 * these threads, and they would receive signals that are meant for the daemon.
 */
#ifndef BLAS_SETUP_H
#define BLAS_SETUP_H

/* Gives OpenBLAS one thread, and kernels that fit the CPU unless OPENBLAS_CORETYPE is set. If the
 * environment has to change for that, this function sets its variables and executes the program
 * again with the same arguments. Otherwise it returns. It must be called before any thread or
 * socket exists. */
void blas_prepare(char *argv[]);

#endif
