import { ChevronDown, Search } from "lucide-react";
import { createContext, use, useId, type InputHTMLAttributes, type ReactNode, type Ref, type SelectHTMLAttributes, type TextareaHTMLAttributes } from "react";
import { cx } from "./cx";

interface FieldIds {
  control: string;
  describedBy: string | undefined;
  invalid: boolean;
}
const FieldContext = createContext<FieldIds | null>(null);

/** A label, its control (Input, Select, Textarea inside it), a hint and an error, tied together for assistive technology. */
export function Field({ label, hint, error, required, children }: { label: ReactNode; hint?: ReactNode; error?: string | null; required?: boolean; children: ReactNode }) {
  const id = useId();
  const note = error || hint ? `${id}-note` : undefined;
  return (
    <FieldContext value={{ control: id, describedBy: note, invalid: Boolean(error) }}>
      <div className="flex flex-col gap-1">
        <label htmlFor={id} className="text-xs font-medium text-soft">
          {label}
          {required && <span className="text-red" aria-hidden> *</span>}
        </label>
        {children}
        {note && (
          <p id={note} className={cx("text-xs", error ? "text-red" : "text-faint")}>
            {error || hint}
          </p>
        )}
      </div>
    </FieldContext>
  );
}

function useFieldProps(id: string | undefined) {
  const field = use(FieldContext);
  return { id: id ?? field?.control, "aria-describedby": field?.describedBy, "aria-invalid": field?.invalid || undefined };
}

const CONTROL = "rounded-md border border-line-strong bg-raised text-sm text-ink hover:border-faint aria-invalid:border-red disabled:opacity-50";

export function Input({ className, id, ...rest }: InputHTMLAttributes<HTMLInputElement> & { ref?: Ref<HTMLInputElement> }) {
  return <input {...useFieldProps(id)} {...rest} className={cx(CONTROL, "h-8 w-full px-2.5", className)} />;
}

export function Textarea({ className, id, ...rest }: TextareaHTMLAttributes<HTMLTextAreaElement> & { ref?: Ref<HTMLTextAreaElement> }) {
  return <textarea rows={3} {...useFieldProps(id)} {...rest} className={cx(CONTROL, "block w-full resize-y px-2.5 py-1.5", className)} />;
}

export interface Option {
  value: string;
  label: string;
}

interface SelectProps extends Omit<SelectHTMLAttributes<HTMLSelectElement>, "onChange" | "value"> {
  value: string;
  options: readonly Option[];
  onChange: (value: string) => void;
}

/** The platform's own select: right on phones and for screen readers without any code. */
export function Select({ value, options, onChange, className, id, ...rest }: SelectProps) {
  return (
    <span className={cx("relative inline-flex max-w-full", className)}>
      <select
        {...useFieldProps(id)}
        {...rest}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        className={cx(CONTROL, "h-8 w-full appearance-none truncate pr-7 pl-2.5 [&>option]:bg-raised")}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
      <ChevronDown className="pointer-events-none absolute top-2 right-2 size-4 text-faint" aria-hidden />
    </span>
  );
}

export function Checkbox({ label, checked, onChange, disabled }: { label: ReactNode; checked: boolean; onChange: (checked: boolean) => void; disabled?: boolean }) {
  return (
    <label className="inline-flex h-8 items-center gap-2 text-sm text-ink">
      <input type="checkbox" checked={checked} disabled={disabled} onChange={(event) => onChange(event.target.checked)} className="size-4 accent-accent" />
      {label}
    </label>
  );
}

/** The search box of a toolbar; "/" puts the cursor into the one that carries `data-search`. */
export function SearchInput({ label, className, ...rest }: { label: string; ref?: Ref<HTMLInputElement> } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <span className={cx("relative inline-flex", className)}>
      <Search className="pointer-events-none absolute top-2 left-2.5 size-4 text-faint" aria-hidden />
      <input type="search" data-search aria-label={label} placeholder={label} {...rest} className={cx(CONTROL, "h-8 w-full pr-2 pl-8")} />
    </span>
  );
}
