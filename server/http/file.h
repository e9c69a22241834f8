/*
 * file.h - opens the files that an operator names: keys, certificates.
 */
#ifndef HTTP_FILE_H
#define HTTP_FILE_H

#include <stddef.h>
#include <stdio.h>

/* Opens a regular file for reading: who opens a pipe may wait for ever. NULL with the reason in
 * error[0..size). */
FILE *file_open(const char *path, char *error, size_t size);

#endif
