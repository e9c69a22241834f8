/*
 * family_keys.c - checks the keys of a config.json: every key that may decide the attention of the
 * model type is known, and has a value of its kind. Other keys refuse the layers, so that the
 * readers of settings find only what they expect.
 */
#include "layers/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"

/* The keys that decide the attention of a model type; all others are counts. */
static const struct keys kinds[] = {
    {KEY_FLAG, 0,
     " add_zero_attn attention_bias attention_k_eq_v causal enable_bias is_decoder qkv_bias "
     "scale_attn_by_inverse_layer_idx scale_attn_weights use_bias use_qkv_bias use_sliding_window "
     "zero_key "},
    {KEY_TEXTS, 0, " attention_layers layer_types "},
    {KEY_NUMBER, 0, " attention_multiplier scale "},
    {KEY_LIST, 0, " attention_types no_rope_layers "},
    {KEY_POSITIVE, 0,
     " attn_logit_softcapping global_rope_theta local_rope_theta max_position_embeddings "
     "norm_epsilon original_max_position_embeddings partial_rotary_factor query_pre_attn_scalar "
     "rms_norm_eps rope_local_base_freq rope_theta rotary_emb_base rotary_pct "},
    {KEY_INDEX, 0,
     " max_window_layers no_rope_layer_interval num_kv_shared_layers sliding_window "},
    {KEY_OBJECT, 0, " per_layer_config rope_parameters rope_scaling "},
    {KEY_TEXT, 0, " position_embedding_type use_bidirectional_attention "},
};

enum {
    MOST_KEYS = 4096,    /* of an object, in which each layer looks up its settings */
    MOST_IGNORED = 64,   /* names of keys that are kept for the list of layers */
    MOST_CHARACTERS = 64 /* of one of them, with its zero */
};

/* The keys of an object that are at fault. */
struct unknown {
    size_t count, named;
    char keys[112]; /* "name (value), name, name": those that there is room for */
};

/* ----------------------------------------------------------------------------------- the checks */

static const struct {
    const char *text;
    enum codec_kind kind;
} must_be[] = {
    [KEY_COUNT] = {"a whole number from 1 to 1048576", CODEC_NUMBER},
    [KEY_INDEX] = {"a whole number from 0 to 1048576", CODEC_NUMBER},
    [KEY_POSITIVE] = {"a number above 0", CODEC_NUMBER},
    [KEY_NUMBER] = {"a number", CODEC_NUMBER},
    [KEY_FLAG] = {"true or false", CODEC_BOOL},
    [KEY_TEXT] = {"a text", CODEC_TEXT},
    [KEY_TEXTS] = {"a list of texts", CODEC_ARRAY},
    [KEY_LIST] = {"a list", CODEC_ARRAY},
    [KEY_OBJECT] = {"an object", CODEC_OBJECT},
};

static bool number_fits(double number, enum key_kind kind) {
    const bool whole = number >= 0 && number <= 1 << 20 && number == floor(number);
    return kind == KEY_COUNT      ? whole && number > 0
           : kind == KEY_INDEX    ? whole
           : kind == KEY_POSITIVE ? isfinite(number) && number > 0
                                  : isfinite(number);
}

/* Returns whether a value is of a kind. */
static bool value_fits(struct config_object object, const struct codec_value *value,
                       enum key_kind kind) {
    struct codec_error unused;
    double number;
    bool fits = codec_kind_of(value) == must_be[kind].kind;
    const struct codec_value *v = fits && kind == KEY_TEXTS ? codec_at(value, 0) : NULL;
    for (; v != NULL; v = codec_next(v)) {
        fits = fits && codec_kind_of(v) == CODEC_TEXT;
    }
    return fits && (must_be[kind].kind != CODEC_NUMBER ||
                    (codec_as_number(object.document, value, &number, &unused) &&
                     number_fits(number, kind)));
}

/* Refuses a value that is not of its kind. */
static bool check_value(const struct search *s, struct config_object object, const char *where,
                        const struct codec_value *value, enum key_kind kind) {
    char text[80];
    if (value_fits(object, value, kind)) {
        return true;
    }
    config_print(object, value, sizeof text, text);
    return search_refuse(s, "%.40s in %.40s is %s; it must be %s", codec_name(value), where, text,
                         must_be[kind].text);
}

bool family_keys_check(const struct search *s, struct config_object object, const char *where,
                       const struct keys *keys, size_t count) {
    char text[80];
    for (const struct codec_value *v = codec_at(object.value, 0); v != NULL; v = codec_next(v)) {
        size_t i = 0;
        if (codec_kind_of(v) == CODEC_NULL) {
            continue;
        }
        while (i < count && (!search_has_name(keys[i].names, codec_name(v)) ||
                             (keys[i].flags & ~s->type->flags) != 0)) {
            i++;
        }
        if (i == count) {
            config_print(object, v, sizeof text, text);
            return search_refuse(
                s, "%.40s in %.40s is %s, and this key is not known for model_type %s",
                codec_name(v), where, text, s->type->name);
        }
        if (!check_value(s, object, where, v, keys[i].kind)) {
            return false;
        }
    }
    return true;
}

static enum key_kind kind_of_key(const char *name) {
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (search_has_name(kinds[i].names, name)) {
            return kinds[i].kind;
        }
    }
    return KEY_COUNT;
}

/* Keeps the name of a key that is ignored, for the list of layers. Returns false with the reason in
 * the layer. */
static bool keep_ignored(const struct search *s, const char *name) {
    struct layer_model *model = s->model;
    const size_t size = strlen(name) + 1;
    size_t count = 0;
    for (const char *n = model->ignored; n != NULL && *n != '\0'; n += strlen(n) + 1) {
        if (strcmp(n, name) == 0) {
            return true;
        }
        count++;
    }
    if (size > MOST_CHARACTERS || count == MOST_IGNORED) {
        return true; /* the list shows what there is, and nobody needs all of it */
    }
    char *grown = account_take(s->config->account, size)
                      ? realloc(model->ignored, model->ignored_size + size + 1)
                      : NULL;
    if (grown == NULL) {
        return search_refuse(s, "there is no memory for the names of its keys");
    }
    memcpy(grown + model->ignored_size, name, size);
    model->ignored = grown;
    model->ignored_size += size;
    model->ignored[model->ignored_size] = '\0';
    return true;
}

/* Returns whether two objects have the same value of a key, as far as a long text shows it, or both
 * have not the key. */
static bool same_value(struct config_object a, struct config_object b, const char *name) {
    char texts[2][4096];
    const struct codec_value *values[] = {codec_get(a.value, name), codec_get(b.value, name)};
    if (values[0] == NULL || values[1] == NULL) {
        return values[0] == values[1];
    }
    config_print(a, values[0], sizeof texts[0], texts[0]);
    config_print(b, values[1], sizeof texts[1], texts[1]);
    return strcmp(texts[0], texts[1]) == 0 && strlen(texts[0]) < sizeof texts[0] - 1;
}

/* Returns whether a value is a twin of the settings of an inner model, such as text_config_dict
 * beside text_config. transformers takes its values, and the defaults of the class for what it has
 * not. */
static bool is_twin(const struct search *s, const struct codec_value *value) {
    const char *name = codec_name(value);
    for (const struct inner_model *i = s->type->inner; i != NULL && i->key != NULL; i++) {
        const size_t size = strlen(i->key);
        if (strncmp(name, i->key, size) != 0 || strcmp(name + size, "_dict") != 0 ||
            i->type == NULL || codec_kind_of(value) != CODEC_OBJECT) {
            continue;
        }
        const struct config_object inner = config_inner(s->object, i->key);
        const struct config_object twin = {s->object.document, value};
        struct search of_inner = *s;
        of_inner.type = family_models_find(i->type);
        for (int of_twin = 0; of_twin < 2; of_twin++) {
            for (const struct codec_value *v = codec_at(of_twin ? value : inner.value, 0);
                 v != NULL; v = codec_next(v)) {
                if ((family_models_uses(&of_inner, codec_name(v)) ||
                     (of_twin && family_words_speak(&of_inner, codec_name(v)))) &&
                    !same_value(inner, twin, codec_name(v))) {
                    return false;
                }
            }
        }
        return inner.value != NULL;
    }
    return false;
}

/* Adds a key at fault to a text. */
static void add_unknown(struct unknown *unknown, struct config_object object,
                        const struct codec_value *value) {
    char text[48], key[96];
    const size_t size = strlen(unknown->keys);
    config_print(object, value, sizeof text, text);
    const int more = unknown->count == 0
                         ? snprintf(key, sizeof key, "%.40s (%s)", codec_name(value), text)
                         : snprintf(key, sizeof key, ", %.40s", codec_name(value));
    if (size + (size_t)more < sizeof unknown->keys) {
        memcpy(unknown->keys + size, key, (size_t)more + 1);
        unknown->named++;
    }
    unknown->count++;
}

/* Checks a key that is not used. */
static bool check_unused(const struct search *s, const struct codec_value *value,
                         struct unknown *unknown) {
    const struct config_object object = s->object;
    const char *name = codec_name(value), *known = family_words_fixed(name);
    char text[80];
    if (search_list_has(s->type->ignores, name) || family_models_ignore(name)) {
        return true;
    }
    config_print(object, value, sizeof text, text);
    if (known != NULL) {
        return strcmp(known, text) == 0 ||
               search_refuse(s,
                             "%s in config.json is %s; only %s is known for this model_type, so "
                             "the layer would be wrong without the key",
                             name, text, known);
    }
    if (strcmp(name, "attn_type_list") == 0 && strspn(text, "[1, ].") == strlen(text)) {
        return true; /* every layer has softmax attention */
    }
    if (codec_kind_of(value) == CODEC_OBJECT || family_words_speak(s, name)) {
        /* read_scales() in family.c looks at the tensors. */
        const bool scales =
            codec_kind_of(value) == CODEC_OBJECT && strcmp(name, "quantization_config") == 0;
        if (!scales && !family_words_no_news(s, name, text) && !is_twin(s, value) &&
            (strcmp(name, "sliding_window_size") != 0 ||
             config_number(object, name, -1) != config_number(object, "sliding_window", -2))) {
            add_unknown(unknown, object, value);
        }
        return true;
    }
    return keep_ignored(s, name);
}

/* Refuses a layer whose settings have keys that may decide its attention. */
static bool refuse_unknown(const struct search *s, const struct unknown *unknown) {
    char more[32] = "";
    if (unknown->named < unknown->count) {
        snprintf(more, sizeof more, " and %zu more", unknown->count - unknown->named);
    }
    return unknown->count == 0 ||
           search_refuse(s,
                         "keys of config.json may decide attention and are not known %s%.40s: "
                         "%s%s. Delete one only if the code of the model does not read it",
                         s->type->name == NULL ? "without model_type" : "for ",
                         s->type->name == NULL ? "" : s->type->name, unknown->keys, more);
}

/* Returns whether a key is not there, and has no default. If num_key_value_heads is null, all heads
 * have keys of their own. */
static bool is_missing(const struct search *s, const char *name) {
    if (strcmp(name, "num_key_value_heads") == 0 && codec_get(s->object.value, name) != NULL) {
        return false;
    }
    return codec_get(s->object.value, name) == NULL ? family_models_default(s->type, name) == 0
                                                    : config_value(s->object, name) == NULL;
}

/* Checks that the keys that must be there are there. */
static bool check_needs(const struct search *s) {
    const struct stack *stack = s->stack;
    const char *const own[] = {stack->heads, stack->size, NULL};
    const char *missing = NULL;
    const char *const *const lists[] = {own, s->type->needs};
    for (size_t i = 0; i < COUNT(lists); i++) {
        for (const char *const *k = lists[i]; k != NULL && *k != NULL; k++) {
            missing = is_missing(s, *k) ? *k : missing;
        }
    }
    for (const char *const *k = s->type->shows; k != NULL && *k != NULL; k++) {
        missing = codec_get(s->object.value, *k) == NULL && family_models_default(s->type, *k) == 0
                      ? *k
                      : missing;
    }
    return missing == NULL ||
           search_refuse(s, "config.json has no %s, which decides the attention of %s", missing,
                         s->type->name);
}

/* Says whether a value is as good as no key. Null is, except for a number that has a default, and
 * for a flag that is true without it: models take null for false. */
static bool is_absent(const struct search *s, const struct codec_value *value) {
    const struct model_type *type = s->type;
    const char *name = codec_name(value), *known = family_words_fixed(name);
    const bool on = strcmp(name, "scale_attn_weights") == 0 ||
                    (type->bias_default && strcmp(name, type->bias_key) == 0) ||
                    (known != NULL && strcmp(known, "true") == 0);
    return codec_kind_of(value) == CODEC_NULL && !on &&
           (family_models_default(type, name) == 0 || search_list_has(type->shows, name) ||
            strcmp(name, "num_key_value_heads") == 0);
}

/* Checks all keys of the settings of the layer. */
static bool check_object(const struct search *s) {
    const struct config_object object = s->object;
    struct unknown unknown = {0};
    if (object.value == NULL) {
        return true; /* without a config.json */
    }
    for (const struct codec_value *v = codec_at(object.value, 0); v != NULL; v = codec_next(v)) {
        if (!is_absent(s, v) &&
            !(family_models_uses(s, codec_name(v))
                  ? check_value(s, object, "config.json", v, kind_of_key(codec_name(v)))
                  : check_unused(s, v, &unknown))) {
            return false;
        }
    }
    return refuse_unknown(s, &unknown) && check_needs(s);
}

/* Checks the settings of the metadata that are used without a model_type, and that no other key of
 * them may decide attention. */
static bool check_metadata(const struct search *s) {
    /* The tensors say what these keys of nn.MultiheadAttention say. */
    static const char sizes[] = " add_bias_kv bias config embed_dim format head_dim kdim vdim ";
    const struct codec_value *metadata = s->config->metadata;
    for (const struct codec_value *v = metadata == NULL ? NULL : codec_at(metadata, 0); v != NULL;
         v = codec_next(v)) {
        const char *name = codec_name(v);
        if (search_list_has(s->type->takes, name) || search_has_name(sizes, name)) {
            continue;
        }
        if (family_words_speak(s, name)) {
            return search_refuse(s, "%.40s in __metadata__ may decide attention and is not known",
                                 name);
        }
        if (!keep_ignored(s, name)) {
            return false;
        }
    }
    for (const char *const *k = s->type->takes; k != NULL && *k != NULL; k++) {
        const char *text = config_metadata(s->config, *k);
        const enum key_kind kind = kind_of_key(*k);
        char *end = NULL;
        const double number = text == NULL ? 0 : strtod(text, &end);
        const bool good = text == NULL ? true
                          : kind == KEY_FLAG
                              ? strcmp(text, "true") == 0 || strcmp(text, "false") == 0
                              : end != text && *end == '\0' && number_fits(number, kind);
        if (!good) {
            return search_refuse(s, "%s in __metadata__ is \"%.40s\"; it must be %s", *k, text,
                                 must_be[kind].text);
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------- the model type */

/* Finds the model type of an object. Without model_type a layer needs names of tensors that stand
 * for one attention only. */
static bool find_type(struct search *s, struct config_object object) {
    const struct codec_value *value = config_value(object, "model_type");
    const char *name = config_text(object, "model_type");
    char names[72];
    if (value != NULL && !check_value(s, object, "config.json", value, KEY_TEXT)) {
        return false;
    }
    s->object = object;
    const bool own = strcmp(s->family->name, "torch") == 0 || strcmp(s->family->name, "plain") == 0;
    s->type = name != NULL || own ? NULL : family_models_guess(s->family->name, object);
    s->type = s->type != NULL ? s->type : family_models_find(name);
    if (s->type == NULL) {
        family_models_list(s->family->name, sizeof names, names);
        return search_refuse(s,
                             "model_type is \"%.40s\", and %sthe models with tensors named like "
                             "those of %s that are known are %s",
                             name, search_capture, s->family->name, names);
    }
    return true;
}

static bool check_size(const struct search *s, const char *what, const struct codec_value *object) {
    const size_t count = object == NULL ? 0 : codec_size(object);
    return count <= MOST_KEYS ||
           search_refuse(s, "%s has %zu keys; at most %d are read", what, count, MOST_KEYS);
}

/* Goes to the model inside of the model, for example to its text_config. */
static bool enter(struct search *s) {
    for (const struct inner_model *i = s->type->inner; i->key != NULL; i++) {
        if (i->part != NULL && !search_has_part(s, i->part)) {
            continue;
        }
        const struct codec_value *value = config_value(s->object, i->key);
        if (value == NULL || codec_kind_of(value) != CODEC_OBJECT) {
            return search_refuse(s,
                                 "config.json has no object %s, which decides the attention of %s",
                                 i->key, s->type->name);
        }
        if (!check_size(s, i->key, value) ||
            !find_type(s, (struct config_object){s->object.document, value})) {
            return false;
        }
        if (s->type->name == NULL || s->type->inner != NULL) {
            return search_refuse(s, "%s in config.json has no model_type of one model", i->key);
        }
        return i->type == NULL || strcmp(i->type, s->type->name) == 0 ||
               search_refuse(s, "model_type in %s is %s; only %s is known there", i->key,
                             s->type->name, i->type);
    }
    return search_refuse(s, "a model of type %s has no attention in this place that is known",
                         s->type->name);
}

/* Finds the stack of the layer. */
static bool find_stack(struct search *s) {
    char names[160];
    for (s->stack = s->type->stacks; s->stack->family != NULL; s->stack++) {
        if (strcmp(s->stack->family, s->family->name) == 0 &&
            (s->stack->part == NULL || search_has_part(s, s->stack->part))) {
            return true;
        }
    }
    if (s->type->name == NULL) {
        family_models_list(s->family->name, sizeof names, names);
        return search_refuse(s, "%s; the models with such tensors that are known are %s",
                             s->object.value == NULL
                                 ? "no config.json with its model_type is beside it"
                                 : "config.json gives no model_type",
                             names);
    }
    return search_refuse(
        s, "a model of type %s has no attention with tensors named like those of %s in this place",
        s->type->name, s->family->name);
}

/* Checks the keys beside an inner model. */
static bool check_outside(const struct search *s) {
    struct unknown unknown = {0};
    for (const struct codec_value *v = codec_at(s->object.value, 0); v != NULL; v = codec_next(v)) {
        const char *name = codec_name(v);
        bool inner = is_absent(s, v);
        for (const struct inner_model *i = s->type->inner; i->key != NULL; i++) {
            inner = inner || strcmp(i->key, name) == 0;
        }
        if (!inner && !check_unused(s, v, &unknown)) {
            return false;
        }
    }
    return refuse_unknown(s, &unknown);
}

/* Checks the keys of the settings, unless they were those of another layer. */
static bool check_once(struct search *s) {
    for (struct checked_settings *c = s->checked; c < s->checked + SEARCH_CHECKED; c++) {
        if (c->type == s->type && c->stack == s->stack && c->object == s->object.value) {
            memcpy(s->layer->reason, c->reason, LAYERS_REASON);
            return s->layer->reason[0] == '\0';
        }
    }
    struct checked_settings *now = &s->checked[s->checked_count++ % SEARCH_CHECKED];
    const bool good = (s->type->name != NULL || check_metadata(s)) && check_object(s);
    *now = (struct checked_settings){s->type, s->stack, s->object.value, ""};
    memcpy(now->reason, s->layer->reason, LAYERS_REASON);
    return good;
}

bool family_keys_find_model(struct search *s) {
    const struct config_object root = config_root(s->config);
    if (root.value != NULL && codec_kind_of(root.value) != CODEC_OBJECT) {
        return search_refuse(s, "config.json is no object");
    }
    if (!check_size(s, "config.json", root.value) || !find_type(s, root)) {
        return false;
    }
    const struct inner_model *inner = s->type->inner;
    const bool enters =
        inner != NULL && (s->type->stacks == NULL || config_value(root, inner->key) != NULL);
    return (!enters || (check_outside(s) && enter(s))) && find_stack(s) && check_once(s);
}

const struct codec_value *family_keys_value(const struct search *s, const char *name) {
    return family_models_uses(s, name) ? config_value(s->object, name) : NULL;
}

const char *family_keys_text(const struct search *s, const char *name) {
    return family_models_uses(s, name) ? config_text(s->object, name) : NULL;
}

double family_keys_number(const struct search *s, const char *name, double otherwise) {
    const char *text = s->type->name == NULL ? config_metadata(s->config, name) : NULL;
    const double own = family_models_default(s->type, name);
    otherwise = own != 0 && codec_get(s->object.value, name) == NULL ? own : otherwise;
    if (text != NULL) {
        return kind_of_key(name) != KEY_FLAG ? strtod(text, NULL) : strcmp(text, "true") == 0;
    }
    return !family_models_uses(s, name)    ? otherwise
           : kind_of_key(name) == KEY_FLAG ? config_flag(s->object, name, otherwise != 0)
                                           : config_number(s->object, name, otherwise);
}

/* Writes a value of a key. */
static const char *text_of(const char *name, double number, char text[static 32]) {
    snprintf(text, 32, "%.17g", number);
    return kind_of_key(name) != KEY_FLAG ? text : number != 0 ? "true" : "false";
}

double family_keys_agreed(const struct search *s, const char *const *names, double otherwise) {
    char texts[2][32];
    const char *first = NULL;
    double value = otherwise;
    for (; *names != NULL; names++) {
        const double own = family_keys_number(s, *names, 0);
        if (config_metadata(s->config, *names) == NULL && config_value(s->object, *names) == NULL) {
            continue;
        }
        if (first != NULL && own != value) {
            search_refuse(s, "%s is %s, but %s, another name of the same setting, is %s", *names,
                          text_of(*names, own, texts[0]), first, text_of(first, value, texts[1]));
            return 0;
        }
        first = *names;
        value = own;
    }
    return value;
}

size_t family_keys_count(const struct search *s, const char *name, size_t otherwise) {
    return (size_t)family_keys_number(s, name, (double)otherwise);
}
