/*
 * cost.h - the costs of the parts of a run, in multiply-adds. Each function reads only those fields
 * of the schedule that are known when it is called.
 */
#ifndef ATTN_COST_H
#define ATTN_COST_H

#include "plan.h"

double cost_of_row(const attn_plan *plan);                          /* one query of one head */
double cost_of_attending(const attn_plan *plan);                    /* PHASE_ATTEND */
double cost_of_preparing(const attn_plan *plan, enum prepare what); /* one row */
double cost_of_packing(const attn_plan *plan);
double cost_of_copying(double numbers, double rows); /* the matrix of a head */
double cost_of_merging(const attn_plan *plan);
double cost_of_ranking(const attn_plan *plan);
double cost_of_projecting(const struct projection *p, size_t rows, size_t columns);
double cost_of_plan(const attn_plan *plan);
double cost_of_rounded_inputs(const attn_plan *plan); /* PHASE_ROUND and its memory */
double cost_of_softmax(const attn_plan *plan);

#endif
