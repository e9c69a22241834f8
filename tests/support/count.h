/* count.h - the number of elements of an array. */
#ifndef SUPPORT_COUNT_H
#define SUPPORT_COUNT_H

#define COUNT(array) (sizeof(array) / sizeof *(array))

#endif
