// Fields of forms: a label that belongs to its input, and a hint below it.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Common {
  label: string;
  hint?: ComponentChildren;
  wide?: boolean;
}

interface FieldProps extends Common {
  value: string;
  onInput: (value: string) => void;
  type?: "text" | "number" | "password" | "datetime-local";
  placeholder?: string;
  required?: boolean;
  mono?: boolean;
  list?: string[];
  autofocus?: boolean;
  disabled?: boolean;
  autocomplete?: string;
}

export function Field({ label, hint, wide, value, onInput, type = "text", placeholder, required, mono, list, autofocus, disabled, autocomplete = "off" }: FieldProps) {
  const id = useId();
  return (
    <div class={`field ${wide ? "wide" : ""}`}>
      <label for={id}>{label}</label>
      <input
        id={id}
        step={type === "number" ? "any" : undefined}
        {...({ type, list: list && `${id}-list` } as { type: "text"; list?: string })}
        value={value}
        placeholder={placeholder}
        required={required}
        disabled={disabled}
        class={mono ? "mono" : ""}
        autofocus={autofocus}
        autocomplete={autocomplete}
        spellcheck={false}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
        onFocus={type === "number" ? (event) => event.currentTarget.select() : undefined} // a typed number replaces the old one
      />
      {list && (
        <datalist id={`${id}-list`}>
          {list.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      )}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface AreaProps extends Common {
  value: string;
  onInput: (value: string) => void;
  rows?: number;
}

export function Area({ label, hint, value, onInput, rows = 8 }: AreaProps) {
  const id = useId();
  return (
    <div class="field wide">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="mono"
        rows={rows}
        value={value}
        spellcheck={false}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface SelectProps extends Common {
  value: string;
  onInput: (value: string) => void;
  options: [value: string, text: string][];
  required?: boolean;
}

export function Select({ label, hint, wide, value, onInput, options, required }: SelectProps) {
  const id = useId();
  return (
    <div class={`field ${wide ? "wide" : ""}`}>
      <label for={id}>{label}</label>
      <select id={id} value={value} required={required} aria-describedby={hint ? `${id}-hint` : undefined} onInput={(event) => onInput(event.currentTarget.value)}>
        {options.map(([one, text]) => (
          <option key={one} value={one} selected={one === value}>
            {text}
          </option>
        ))}
      </select>
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

/** A few choices, one of them pressed. */
export function Choice<T extends string>({ label, value, options, onPick }: { label: string; value: T; options: [T, ComponentChildren][]; onPick: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([one, text]) => (
        <button key={one} type="button" aria-pressed={one === value} onClick={() => onPick(one)}>
          {text}
        </button>
      ))}
    </div>
  );
}
