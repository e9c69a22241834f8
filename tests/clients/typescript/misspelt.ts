// misspelt.ts must not compile, because of its last key alone.
import type { components } from './attentiond.js';

export const body: components['schemas']['AttentionRequest'] = { Q: [[1]], K: [[1]], V: [[1]], casual: true };
