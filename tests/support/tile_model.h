/*
 * tile_model.h - a plain C model of the tile instructions of AMX-BF16, and the kernels of tiles.inc
 * compiled for it. The model follows the operations that Intel's Software Developer's Manual,
 * volume 2, describes for LDTILECFG, TILELOADD, TILESTORED, TILEZERO and TDPBF16PS, bit for bit
 * except for the payload of NaN. Where an instruction would fault, an assertion fails. Each thread
 * has tile registers of its own.
 */
#ifndef SUPPORT_TILE_MODEL_H
#define SUPPORT_TILE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tiles.h"

/* The vectors of the model have 16 lanes and do what those of AVX-512 do, so that all results have
 * the same bits as attn_tiles_amx, those of softmax included. */
extern const struct attn_tiles tile_model;

/* LDTILECFG with 64 bytes: byte 0 is the palette; word 8 + t has the bytes of a row of register t,
 * and byte 48 + t its rows. Returns false if the instruction would fault. */
bool tile_model_configure(const uint8_t config[64]);
void tile_model_release(void);
void tile_model_zero(int t);
void tile_model_load(int t, const void *from, size_t stride);
void tile_model_store(int t, void *to, size_t stride);
/* TDPBF16PS: adds the products of the pairs of bfloat16 of registers a and b to the floats of c. */
void tile_model_dot(int c, int a, int b);

/* VCVTNE2PS2BF16 of one float: x rounded to bfloat16, to nearest even; a subnormal number is 0. */
uint16_t tile_model_round(float x);

#endif
