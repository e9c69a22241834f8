/*
 * plan_attention.h - plans attention over given Q, K and V, and completes the plans of softmax.
 */
#ifndef ATTN_PLAN_ATTENTION_H
#define ATTN_PLAN_ATTENTION_H

#include "plan.h"

/* Completes a plan whose sizes, heads and operands are known: its options, its results, its
 * schedule and its cost. The last two of a call of sequences are left to plan_sequences(). */
attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error);

/* Plans attention over given Q, K and V. */
attn_status plan_attention(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                           const attn_tensor *v, const attn_options *o, attn_error *error);

/* Finds the number of key heads for so many query heads, and checks that it divides them. */
attn_status plan_kv_heads(const attn_options *o, size_t heads, size_t *kv_heads, attn_error *error);

#endif
