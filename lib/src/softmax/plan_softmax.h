/*
 * plan_softmax.h - how softmax alone is cut: the slices of an array along one axis.
 */
#ifndef ATTN_PLAN_SOFTMAX_H
#define ATTN_PLAN_SOFTMAX_H

#include "partition.h"

enum {
    SOFTMAX_COLUMNS = 256 /* the most columns of one task of softmax alone */
};

/* Softmax alone, along the middle of (outer, count, inner). A slice is the `count` numbers that sum
 * to 1; slices beside each other are columns. */
struct slices {
    size_t outer, count, inner;
    size_t columns;       /* columns of one unit of work */
    size_t across;        /* units of work beside each other in `inner` */
    size_t chunk;         /* numbers of a slice that one unit takes */
    size_t chunks;        /* units of work along a slice */
    struct partition all; /* the units of work */
};

#endif
