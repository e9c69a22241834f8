/*
 * file.h - opens the files that an operator names: keys and certificates.
 */
#ifndef HTTP_FILE_H
#define HTTP_FILE_H

#include <stddef.h>
#include <stdio.h>

/* Opens a file for reading. It must be a regular file, because reading a pipe may wait for ever.
 * Returns owned; NULL with the reason in error[0..size). */
FILE *file_open(const char *path, char *error, size_t size);

#endif
