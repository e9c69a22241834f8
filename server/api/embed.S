/*
 * embed.S - puts openapi.yaml into the daemon, so that GET /openapi.yaml needs no file.
 * The text runs from embed_openapi to embed_openapi_end, where a NUL stands.
 */
    .section .rodata
    .global embed_openapi
    .hidden embed_openapi
    .type embed_openapi, %object
    .global embed_openapi_end
    .hidden embed_openapi_end
    .type embed_openapi_end, %object

embed_openapi:
    .incbin "openapi.yaml"
    .size embed_openapi, . - embed_openapi
embed_openapi_end:
    .byte 0
    .size embed_openapi_end, . - embed_openapi_end

    .section .note.GNU-stack, "", %progbits
