/*
 * blas_setup.h - the environment of OpenBLAS. OpenBLAS decides two things when it is loaded, before
 * main. It chooses its kernels from a table of CPU models, and a model that is newer than the table
 * gets kernels from 2004. It also decides how many threads it starts. The daemon does not need
 * these threads, and they would receive signals that are meant for the daemon.
 *
 * A program that calls blas_report() gives OpenBLAS one thread, and kernels that fit the CPU unless
 * OPENBLAS_CORETYPE is set, before OpenBLAS decides. With the C library musl it does not, and the
 * environment must have OPENBLAS_NUM_THREADS=1.
 */
#ifndef BLAS_SETUP_H
#define BLAS_SETUP_H

/* Writes to standard error which kernels OpenBLAS got if its own choice was a bad one. */
void blas_report(void);

#endif
