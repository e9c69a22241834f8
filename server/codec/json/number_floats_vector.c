/*
 * number_floats_vector.c - arrays of floats as text, in the vectors of AVX2 on x86 (the Makefile
 * gives this file its flags).
 */
#include "codec/json/number.h"

#ifdef NUMBER_WIDE
#define WRITE_FLOATS number_write_floats_wide
#include "codec/json/number_floats.inc"
#endif
