/* texts.c - tensors of texts, as the type BYTES of the Open Inference Protocol has them. In bytes,
 * each text has its length before it, in four bytes. Texts from JSON get the same form, which
 * vocabulary.c reads. */
#include "codec/binary.h"

#include <string.h>

#include "codec/json/document.h"
#include "codec/json/refuse.h"

/* Where the texts of an array go. */
struct packing {
    const struct codec_document *document;
    const struct codec_tensor_form *form;
    char *out;    /* NULL: the bytes are only counted */
    size_t bytes; /* so far */
    size_t texts; /* so far */
};

/* Packs a text. */
static bool pack_text(struct packing *packing, const struct codec_value *value,
                      struct codec_error *error) {
    const char *text;
    if (!codec_as_text(packing->document, value, &text, error)) {
        return false;
    }
    const uint32_t size = (uint32_t)strlen(text); /* a skeleton is much shorter */
    if (packing->out != NULL) {
        memcpy(packing->out + packing->bytes, &size, sizeof size);
        memcpy(packing->out + packing->bytes + sizeof size, text, size);
    }
    packing->bytes += sizeof size + size;
    packing->texts++;
    return true;
}

/* Packs the texts of an array whose first axis is `axis` of the form. Arrays are nested as the form
 * says. */
static bool pack_axis(struct packing *packing, const struct codec_value *value, int axis,
                      struct codec_error *error) {
    if (axis == packing->form->rank) {
        return pack_text(packing, value, error);
    }
    if (codec_kind_of(value) != CODEC_ARRAY || codec_size(value) != packing->form->shape[axis]) {
        return codec_fail(packing->document, value, error,
                          "data of BYTES must be an array of strings, flat or nested as its shape "
                          "says");
    }
    for (const struct codec_value *item = codec_at(value, 0); item != NULL;
         item = codec_next(item)) {
        if (!pack_axis(packing, item, axis + 1, error)) {
            return false;
        }
    }
    return true;
}

static bool pack(struct packing *packing, const struct codec_value *value,
                 struct codec_error *error) {
    const struct codec_value *item = codec_at(value, 0);
    if (codec_kind_of(item) == CODEC_ARRAY) {
        return pack_axis(packing, value, 0, error);
    }
    for (; item != NULL; item = codec_next(item)) {
        if (!pack_text(packing, item, error)) {
            return false;
        }
    }
    return true;
}

size_t codec_form_texts(const struct codec_tensor_form *form) {
    size_t count = 1;
    for (int axis = 0; axis < form->rank; axis++) {
        count *= form->shape[axis];
    }
    return count;
}

bool codec_move_texts(struct codec_document *to, const struct codec_value *at,
                      const struct codec_document *from, const struct codec_value *value,
                      const struct codec_tensor_form *form, struct codec_error *error) {
    struct account *account = codec_document_account(to);
    struct packing packing = {.document = from, .form = form};
    struct lifted packed;
    if (!pack(&packing, value, error)) {
        return false;
    }
    const size_t count = codec_form_texts(form), bytes = packing.bytes;
    if (packing.texts != count) {
        return codec_fail(from, value, error,
                          "the tensor \"%.64s\" has %zu texts in its data, but %zu in its shape",
                          codec_name(at), packing.texts, count);
    }
    if (!lifted_zeros(&packed, account, ATTN_BOOL, 1, &bytes, bytes, bytes)) {
        return codec_no_memory(error);
    }
    packing.out = packed.data;
    packing.bytes = 0;
    pack(&packing, value, error);
    packed.texts = count;
    if (document_put_tensor(to, at, &packed, error) == DOCUMENT_NO_TENSOR) {
        lifted_free(&packed, account);
        return false;
    }
    return true;
}
